package bridge_test

import "os"

// nullSignal asks whether a process is there; Windows has none.
var nullSignal = os.Interrupt
