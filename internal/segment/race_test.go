//go:build race

package segment_test

// stride is how many steps a table of faults goes on at a time: with the race detector, which
// takes ten times as long, not each of them is taken.
const stride = 5
