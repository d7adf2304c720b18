package relay

import "time"

// Cookie is a session of a token that ends after age.
func (r *Relay) Cookie(token string, age time.Duration) string {
	return r.cookieName(false) + "=" + r.session(r.gate.current.Load().token(token), time.Now().Add(age))
}
