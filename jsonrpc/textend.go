package jsonrpc

import "bytes"

// textEnd returns the end of a string of which p is the rest. The first n bytes cannot end it.
// If p has no end, textEnd reports whether the next byte is escaped.
//
// bytes.IndexByte is fast in long text. In a string that holds JSON, escaped quotes are
// frequent, so the bytes after an escaped quote are checked one by one.
func textEnd(p []byte, n int) (end int, closed, escapes bool) {
	for i := n; ; {
		quote := bytes.IndexByte(p[i:], '"')
		if quote < 0 {
			return len(p), false, endsEscaping(p[n:])
		}
		if i += quote; !endsEscaping(p[n:i]) {
			return i + 1, true, false
		}
		i++
		for near := min(i+12, len(p)-1); i < near; i++ {
			switch p[i] {
			case '\\':
				i++
				near = min(i+12, len(p)-1)
			case '"':
				return i + 1, true, false
			}
		}
	}
}

// endsEscaping reports whether the byte after p is escaped.
func endsEscaping(p []byte) bool {
	n := 0
	for n < len(p) && p[len(p)-1-n] == '\\' {
		n++
	}
	//mutate:swap "n%2 == 1" "n > 0" FuzzTextEnd the end of a string differs from that of clients
	return n%2 == 1
}
