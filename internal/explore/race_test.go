//go:build race

package explore

// raceFactor divides the number of runs, because the race detector makes each of them slow.
const raceFactor = 100
