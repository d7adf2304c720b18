//go:build !race

package segment_test

// stride is how many steps a table of faults goes on at a time: each is taken.
const stride = 1
