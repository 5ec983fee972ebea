package localdesk

import "net"

// SetUserOf has the listener ask f who has opened a connection. Nobody may have called
// Accept before.
func (l *Listener) SetUserOf(f func(net.Conn) (uid int, err error)) { l.userOf = f }
