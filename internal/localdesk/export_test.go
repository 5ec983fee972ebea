package localdesk

import "net"

// SetUserOf replaces the function that returns the user of a connection. Call it before
// Accept.
func (l *Listener) SetUserOf(f func(net.Conn) (uid int, err error)) { l.userOf = f }
