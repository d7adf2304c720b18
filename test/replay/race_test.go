//go:build race

package replay

// every is which recordings are played: with the race detector, which sees only this test
// and not the program that is tested, each fourth, and all of true timing.
const every = 4
