// Package run folds the events of one run into its state: sessions, turns, tasks
// and their agents, asks, usage, interrupts, and the verdict with its evidence.
// It is pure: the same events give the same state, wherever they are folded (edge,
// relay, command line, notifications). It keeps no frame, only bounded facts.
//
// # Turns
//
// A round is what one result ends. A user turn is the round that a user message
// led to, the tasks that it started, and the rounds that their ends woke; its
// verdict is taken from all of them. Messages that the child took in while it
// worked belong to the turn they came in.
//
// # Verdict
//
// Each turn collects evidence, and so does the end of the child. The first of
// lost, failed, interrupted, denied, incomplete that has evidence is the verdict,
// success is the absence of all. The run's verdict is that of its last user turn
// together with how the child ended.
package run
