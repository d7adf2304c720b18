// Package sink delivers one notice to one destination: a Slack bot, a Slack
// incoming webhook, a generic webhook, a mail server, a command. It owns the
// form, the limits and the escaping of each, and makes one attempt a call;
// consumers/notify owns when, what and where, and when to try again.
//
// Everything that a child said is hostile text here. Each sink has one layer
// that escapes it, once, and cuts after escaping.
//
// No error of this package holds an address, a token or a header: destinations
// are shown by their names.
package sink
