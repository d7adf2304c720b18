package main

// consumerKinds are the programs that there are, in the order in which up starts them.
func consumerKinds() []consumerKind {
	return []consumerKind{metricsKind(), notifyKind(), archiveKind(), traceKind()}
}
