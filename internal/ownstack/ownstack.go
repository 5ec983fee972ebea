// Package ownstack keeps the stacks of goroutines small that do nothing but wait,
// of which there may be many. A stack that has once grown stays large.
package ownstack

// Do does what needs a deep stack on another one, and returns when it is done.
func Do(do func()) {
	done := make(chan any)
	go func() {
		defer func() { done <- recover() }()
		do()
	}()
	if cause := <-done; cause != nil {
		panic(cause)
	}
}
