// Package natsd runs a nats-server inside this process. [Start] runs one on a
// directory; [Open] runs or joins the one local store that all cbcast
// processes of a user share, and takes it over when its owner ends. It is the
// only importer of nats-server and knows nothing of streams.
package natsd
