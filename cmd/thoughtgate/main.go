// Command thoughtgate is a gate on the wire between MCP clients and MCP
// servers. This package is only the command line: it reads flags, environment
// and signals, and leaves the rest to the packages behind it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // cedar.timezone must work in an image without any file
)

func main() {
	if err := newRoot().ExecuteContext(untilSignal()); err != nil {
		os.Exit(fail(os.Stderr, err))
	}
}

// untilSignal returns a context that ends with the first signal to stop. The
// second one ends the process, whatever is under way.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() { // lives as long as the process
		<-signals
		cancel()
		code := 128 // and the number of the signal, as shells have it
		if s, ok := (<-signals).(syscall.Signal); ok {
			code += int(s)
		}
		os.Exit(code)
	}()
	return ctx
}
