// Package metrics counts what the bus has about runs, for Prometheus. It reads every
// event and control fact once, folds runs with internal/run, and keeps its counts with
// the places in the logs in one snapshot file: after a crash reading goes on from the
// snapshot, and nothing is counted twice or left out.
//
// Labels come from closed sets, from the configuration, or from bounded sets of values
// past which a value is "other". No label holds the id of a run, a session or a task;
// exemplars do.
package metrics
