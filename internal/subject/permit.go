package subject

import (
	"strconv"
	"strings"
)

// Any stands for every id in the patterns of permissions. It is no id: [Token] makes
// another token of it.
const Any = "*"

// The patterns below are what a NATS server permits, subject by subject. They name
// what cbcast itself publishes and asks, in the only form that can be permitted
// narrowly: with the stream, the consumer's name and the filter in the subject.

func pattern(id string) string {
	if id == Any {
		return Any
	}
	return Token(id)
}

// RunEvents matches the subjects of a run's events, or of all runs of a tenant.
func RunEvents(p int, tenant, run string) string {
	return RunAll(p, tenant, run)[:len(RunAll(p, tenant, run))-1] + "*.*.*"
}

// RunAll is [RunFilter], or matches it for all runs of a tenant.
func RunAll(p int, tenant, run string) string {
	return eventRoot + strconv.Itoa(p) + "." + pattern(tenant) + "." + pattern(run) + ".>"
}

// RunHints matches the wake-up copies of a run's commands.
func RunHints(tenant, run string) string {
	return hintRoot + pattern(tenant) + "." + pattern(run) + ".>"
}

// RunLiveness is where a run's edge says that it is back.
func RunLiveness(tenant, run string) string {
	return controlRoot + pattern(tenant) + "." + pattern(run) + "." + Liveness
}

// RunCommands is the filter of a run's commands.
func RunCommands(tenant, run string) string {
	return commandRoot + pattern(tenant) + "." + pattern(run) + ".>"
}

// Entry is a key of a bucket that has one for each run.
func Entry(bucket, run string) string { return bucketRoot(bucket) + pattern(run) }

// Conversations matches the keys of all conversations of a tenant.
func Conversations(tenant string) string {
	return bucketRoot(SessionsBucket) + pattern(tenant) + ".>"
}

// ConversationKey is the key of a conversation, as a subject.
func ConversationKey(c Conversation) string { return bucketRoot(SessionsBucket) + c.Key() }

func bucketRoot(bucket string) string { return "$KV." + bucket + "." }

// BucketStream is the stream behind a bucket.
func BucketStream(bucket string) string { return "KV_" + bucket }

// API is a request to JetStream about a stream, and what belongs to it: a consumer's
// name, a filter.
func API(verb, stream string, more ...string) string {
	return strings.Join(append([]string{"$JS.API." + verb, stream}, more...), ".")
}

// Ack matches the acknowledgements of a consumer.
func Ack(stream, consumer string) string { return "$JS.ACK." + stream + "." + consumer + ".>" }
