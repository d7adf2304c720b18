package relay

import (
	"cmp"
	"maps"
	"slices"
)

// RouteInfo is what a route says of itself.
type RouteInfo struct{ Method, Path, Scope string }

// Routes lists the routes, for the tests that compare them with the documents.
func (r *Relay) Routes() []RouteInfo {
	var list []RouteInfo
	for _, t := range r.routes() {
		list = append(list, RouteInfo{t.method, t.path, string(t.scope)})
	}
	slices.SortFunc(list, func(a, b RouteInfo) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method)) })
	return list
}

// Codes lists the closed set of codes, sorted.
func Codes() []string {
	var list []string
	for c := range maps.Keys(statusOf) {
		list = append(list, string(c))
	}
	slices.Sort(list)
	return list
}

// StatusOf is the status of a code.
func StatusOf(code string) int { return statusOf[Code(code)] }
