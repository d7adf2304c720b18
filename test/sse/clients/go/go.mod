module github.com/cbcast/cbcast/test/sse/clients/go

go 1.26

require (
	github.com/launchdarkly/eventsource v1.11.0
	github.com/tmaxmax/go-sse v0.12.0
)
