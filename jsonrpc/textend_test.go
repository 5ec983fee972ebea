package jsonrpc

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// slowTextEnd is textEnd, implemented byte by byte.
func slowTextEnd(p []byte, n int) (end int, closed, escapes bool) {
	escaped := false
	for i := n; i < len(p); i++ {
		switch {
		case escaped:
			escaped = false
		case p[i] == '\\':
			escaped = true
		case p[i] == '"':
			return i + 1, true, false
		}
	}
	return len(p), false, escaped
}

func FuzzTextEnd(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		alphabet := []string{`\"x`, `\\\"x`, `\"xxxxxxxxxxxxxx`, `"\xxxxxxxx` + "\x21\x23\x5b\x5d\xa2\xdc\x00", `\"#]xx`}[random.IntN(5)]
		var text strings.Builder
		for range random.IntN(40) {
			text.WriteByte(alphabet[random.IntN(len(alphabet))])
		}
		f.Add([]byte(text.String()), random.IntN(2))
	}
	f.Fuzz(func(t *testing.T, p []byte, n int) {
		if n < 0 || n > len(p) {
			return
		}
		end, closed, escapes := textEnd(p, n)
		wantEnd, wantClosed, wantEscapes := slowTextEnd(p, n)
		if end != wantEnd || closed != wantClosed || escapes != wantEscapes {
			t.Errorf("textEnd(%q, %d) = %d, %v, %v; want %d, %v, %v", p, n, end, closed, escapes, wantEnd, wantClosed, wantEscapes)
		}
	})
}
