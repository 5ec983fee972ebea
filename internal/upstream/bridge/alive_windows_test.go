package bridge_test

import "os"

// nullSignal tests whether a process exists; Windows has no such signal.
var nullSignal = os.Interrupt
