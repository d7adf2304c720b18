package natsauth

import (
	"fmt"
	"slices"

	"github.com/cbcast/cbcast/internal/subject"
)

// A Role is what a user of the server is for.
type Role string

// The roles.
const (
	// Edge publishes one run, or those of one tenant.
	Edge Role = "edge"
	// Relay serves every run of its account, and commands them; so do the commands of
	// cbcast that read and command: ls, tail, interrupt, asks.
	Relay Role = "relay"
	// Consumer reads every event and control fact of its account, and the registry:
	// cbcast notify and metrics.
	Consumer Role = "consumer"
	// Archive is a consumer that reads commands, too: cbcast archive. Its place in a
	// stream is out of reach for every other consumer.
	Archive Role = "archive"
	// Admin makes and compares the streams and buckets: cbcast provision.
	Admin Role = "admin"
)

// Roles lists them.
var Roles = []Role{Edge, Relay, Consumer, Archive, Admin}

// A Grant is who may do what.
type Grant struct {
	Role Role
	// Tenant and Run are an edge's. Run "" is every run of the tenant: then edges
	// of one tenant can do each other harm.
	Tenant, Run string
	// Sessions are the conversations whose lease the edge of a run may hold.
	Sessions []subject.Conversation
	// Partitions of the events; 0 is 1.
	Partitions int
	// Inbox begins the subjects that answers come to: of one user, since whoever may
	// listen there reads what others are told.
	Inbox string
}

// Permissions are the only subjects that a user may publish to and subscribe to. What
// Deny matches is not published, whatever Publish says.
type Permissions struct {
	Publish, Subscribe, Deny []string
}

// Permissions returns what g allows, or an error where g makes no sense.
func (g Grant) Permissions() (Permissions, error) {
	if g.Inbox == "" {
		return Permissions{}, fmt.Errorf("%s: no inbox prefix", g.Role)
	}
	g.Partitions = max(g.Partitions, 1)
	var p Permissions
	switch g.Role {
	case Edge:
		if g.Tenant == "" {
			return p, fmt.Errorf("edge: no tenant")
		}
		p = g.edge()
	case Relay:
		p = g.relay()
	case Consumer:
		p = g.consumer()
	case Archive:
		p = g.archive()
	case Admin:
		p = g.admin()
	default:
		return p, fmt.Errorf("role %q; there are %v", g.Role, Roles)
	}
	p.Subscribe = append([]string{g.Inbox + ".>"}, p.Subscribe...)
	return p, nil
}

func (g Grant) edge() Permissions {
	run, name := g.Run, subject.Token(g.Run)
	if run == "" {
		run, name = subject.Any, subject.Any
	}
	filter := subject.RunCommands(g.Tenant, run)
	live := subject.RunLiveness(g.Tenant, run)
	p := Permissions{
		Publish: []string{
			live, subject.Entry(subject.RunsBucket, run), subject.Entry(subject.PresenceBucket, run),
			subject.API("DIRECT.GET", subject.ControlStream, live),
			subject.API("CONSUMER.CREATE", subject.CommandStream, name, filter),
			subject.API("CONSUMER.MSG.NEXT", subject.CommandStream, name),
			subject.API("CONSUMER.DELETE", subject.CommandStream, name),
		},
		Subscribe: []string{subject.RunHints(g.Tenant, run)},
	}
	parts := []int{subject.Partition(g.Run, g.Partitions)}
	if g.Run == "" {
		parts = partitions(g.Partitions)
	}
	for _, n := range parts {
		p.Publish = append(p.Publish, subject.RunEvents(n, g.Tenant, run),
			subject.API("DIRECT.GET", subject.EventStream(n), subject.RunAll(n, g.Tenant, run)))
	}
	keys := []string{subject.Conversations(g.Tenant)}
	if g.Run != "" {
		keys = nil
		for _, c := range g.Sessions {
			keys = append(keys, subject.ConversationKey(c))
		}
	}
	for _, key := range keys {
		p.Publish = append(p.Publish, key, subject.API("DIRECT.GET", subject.BucketStream(subject.SessionsBucket), key))
	}
	return p
}

func (g Grant) relay() Permissions {
	p := Permissions{Publish: []string{
		subject.CommandStreamSubjects, subject.ControlStreamSubjects, subject.Entry(subject.RunsBucket, subject.Any),
	}}
	streams := g.read()
	streams = append(streams, subject.BucketStream(subject.PresenceBucket))
	for _, s := range streams {
		p.Publish = append(p.Publish, reads(s)...)
	}
	p.Publish = append(p.Publish, subject.API("STREAM.MSG.GET", subject.CommandStream))
	return p
}

func (g Grant) consumer() Permissions {
	p := g.reader()
	of := subject.ArchiveConsumer
	p.Deny = []string{ // the names of one consumer are not all at one place
		subject.API("CONSUMER.*", subject.Any, of), subject.API("CONSUMER.*", subject.Any, of, ">"),
		subject.API("CONSUMER.MSG.NEXT", subject.Any, of), subject.API("CONSUMER.DURABLE.CREATE", subject.Any, of),
		subject.Ack(subject.Any, of),
	}
	return p
}

// reader reads through consumers that the server keeps.
func (g Grant) reader() Permissions {
	var p Permissions
	for _, s := range g.read() {
		p.Publish = append(p.Publish, reads(s)...)
		p.Publish = append(p.Publish, keeps(s, subject.Any)...)
	}
	return p
}

func (g Grant) archive() Permissions {
	p := g.reader()
	cmd := subject.CommandStream
	p.Publish = append(p.Publish, subject.API("STREAM.INFO", cmd), subject.API("STREAM.MSG.GET", cmd),
		subject.API("CONSUMER.MSG.NEXT", cmd, subject.ArchiveConsumer))
	p.Publish = append(p.Publish, keeps(cmd, subject.ArchiveConsumer)...)
	return p
}

// keeps is what a consumer takes that the server keeps, beside reading: to make it, to
// see where it is, to have messages again, to let another instance read, and to ack.
func keeps(stream, consumer string) []string {
	var all []string
	for _, verb := range []string{"CREATE", "INFO", "RESET", "UNPIN"} {
		all = append(all, subject.API("CONSUMER."+verb, stream, consumer))
	}
	return append(all, subject.Ack(stream, consumer))
}

// read are the streams that relays and consumers read.
func (g Grant) read() []string {
	var all []string
	for _, n := range partitions(g.Partitions) {
		all = append(all, subject.EventStream(n))
	}
	return append(all, subject.ControlStream, subject.BucketStream(subject.RunsBucket))
}

// reads is what reading a stream takes: its state, messages by their place, and
// consumers with a name and a filter.
func reads(stream string) []string {
	return []string{
		subject.API("STREAM.INFO", stream),
		subject.API("STREAM.MSG.GET", stream),
		subject.API("DIRECT.GET", stream),
		subject.API("CONSUMER.CREATE", stream, subject.Any, ">"),
		subject.API("CONSUMER.MSG.NEXT", stream, subject.Any),
		subject.API("CONSUMER.DELETE", stream, subject.Any),
	}
}

func (g Grant) admin() Permissions {
	streams := append(g.read(), subject.CommandStream,
		subject.BucketStream(subject.PresenceBucket), subject.BucketStream(subject.SessionsBucket))
	var p Permissions
	for _, s := range streams {
		for _, verb := range []string{"STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE"} {
			p.Publish = append(p.Publish, subject.API(verb, s))
		}
	}
	return p
}

func partitions(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// sorted is for texts that are compared.
func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
