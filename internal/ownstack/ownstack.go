// Package ownstack keeps the stacks of idle goroutines small. A goroutine's stack grows for one
// deep call and stays large, so goroutines that mostly wait make such calls in another goroutine:
//
//	ownstack.Do(func() { err = send(event) })
//
// It is a package because approval, conversation, mcphttp and http1 use it and share no other.
package ownstack

// Do runs do in a new goroutine and waits for it. A panic of do reaches the caller.
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
