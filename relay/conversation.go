package relay

import "github.com/cbcast/cbcast/internal/bus"

// linked reports of a run whether it belongs to the conversation that has session
// among its ids; "" is every run. An agent may give a resumed conversation another
// id, so runs are linked by each id they had and by the one they were to resume.
func (g *registry) linked(session string) func(*bus.RunInfo) bool {
	if session == "" {
		return func(*bus.RunInfo) bool { return true }
	}
	in := g.conversation(session)
	return func(i *bus.RunInfo) bool { return in[node{i.Tenant, "run", i.Run}] }
}

// conversation is everything that linked follows. The same id of another tenant is
// another conversation.
func (g *registry) conversation(session string) map[node]bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	by := map[node][]node{} // who shares an id with whom
	tenants := map[string]bool{}
	for _, i := range g.runs {
		tenants[i.Tenant] = true
		run := node{i.Tenant, "run", i.Run}
		for _, other := range names(i) {
			by[run], by[other] = append(by[run], other), append(by[other], run)
		}
	}
	in := map[node]bool{}
	var todo []node
	for t := range tenants {
		todo = append(todo, node{t, "session", session})
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !in[n] {
			in[n] = true
			todo = append(todo, by[n]...)
		}
	}
	return in
}

// A node is a run or a session of a tenant.
type node struct{ tenant, kind, id string }

// names lists what a run is linked by.
func names(i *bus.RunInfo) (all []node) {
	for _, s := range i.Sessions {
		all = append(all, node{i.Tenant, "session", s})
	}
	if r := i.Resume; r != nil && r.Session != "" {
		all = append(all, node{i.Tenant, "session", r.Session})
	}
	if r := i.Resume; r != nil && r.Run != "" {
		all = append(all, node{i.Tenant, "run", r.Run})
	}
	return all
}
