// Package trace makes one OpenTelemetry trace of each run and sends it to a
// collector by OTLP over HTTP:
//
//	CI job → run → turn → workflow → phase → agent → tool
//
// [Builder] is pure: it folds the events of one run into spans. Ids follow from the
// run and from what a span is of, so the same events give the same spans, whoever
// makes them and how often. [Run] reads the bus as a durable consumer, gives what has
// ended to the collector and acknowledges the events when the collector has it.
//
// Names are those of OpenTelemetry's semantic conventions for GenAI (gen_ai.*:
// invoke_agent, invoke_workflow, execute_tool, chat) and CI/CD (cicd.*, vcs.*); what
// they have no name for begins with cbcast. docs/traces.md lists all of it.
//
// The OpenTelemetry SDK is not linked: it would add 8.6 MB to the memory of every
// `cbcast run` (docs/adr/0014-traces-without-the-sdk.md).
package trace
