package relay

import (
	"net/http"
	"strings"
)

const (
	// behalfHeader names for whom a program acts: somebody that it knows and the
	// relay does not. It is recorded, and gives no right.
	behalfHeader = "Cbcast-On-Behalf-Of"

	// maxBehalf bounds it, in bytes.
	maxBehalf = 200
)

func scopeWords() string {
	words := make([]string, len(Scopes))
	for n, s := range Scopes {
		words[n] = string(s)
	}
	return strings.Join(words, ", ")
}

// onBehalf lets h answer those who may act for whom they name. It stands behind the
// routing: a path that does not exist is not found whatever the headers say.
func onBehalf(h handler) handler {
	return func(w http.ResponseWriter, q *http.Request) *apiErr {
		if err := callerOf(q).actFor(q); err != nil {
			return err
		}
		return h(w, q)
	}
}

// actFor notes for whom q says that it acts. Whoever may not say so is refused,
// rather than heard as himself: the audit would name the wrong one.
func (c *caller) actFor(q *http.Request) *apiErr {
	values := q.Header.Values(behalfHeader)
	if len(values) == 0 || !unsafe(q.Method) {
		return nil
	}
	if c.via != viaToken || !c.holds(ScopeDelegate) {
		return fail(CodeForbidden, "only a token with the scope delegate may act for others ("+behalfHeader+")").with("scope", ScopeDelegate)
	}
	name := values[0]
	plain := !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
	if len(values) > 1 || name == "" || len(name) > maxBehalf || !plain {
		return fail(CodeBadRequest, "it must stand there once, with 1 to 200 printable ASCII characters without space").with("parameter", behalfHeader)
	}
	c.behalf = name
	return nil
}
