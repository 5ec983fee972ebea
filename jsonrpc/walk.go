package jsonrpc

import (
	"errors"
	"io"
	"unicode/utf8"
)

// A walker has the scanner read a text of any size from left to right, of which
// it holds no more than a window. It reads token by token: what the scanner
// finds incomplete it is given again once there is more of it. Only strings
// that are values may be longer than the window; they are read in pieces.
//
// Places that outlive a step are counted from the start of the text, as the
// scanner's base is.
type walker struct {
	scanner

	src    io.Reader
	window []byte // what has been read of src; the scanner has the whole characters of it
	limit  int    // how large the window may become
	ended  error  // why there is no more of src
	keep   int    // from which place on the window's bytes are needed
	pos    int    // how far data has been read
	want   expected
	deep   int // objects nested deeper than this may repeat a name
}

// maxWindow is how much of a text a walker holds.
const maxWindow = 64 << 10

// expected is what may come next.
type expected uint8

const (
	expectValue expected = iota
	expectFirst          // the first item of an object or array, or its end
	expectItem           // an item of an object or array
	expectNext           // a comma, or the end of the object or array
	expectText           // the rest of a string
	expectEnd            // white space
)

// A token is what one step has read, white space in front of it included.
// Brackets and commas stand for themselves.
type token byte

const (
	tokenNone   token = 0   // nothing: there is not enough of it, or it is refused
	tokenName   token = 'n' // the name of a member, and the colon
	tokenScalar token = 's' // a number, a literal, or a piece of a string
	tokenSpace  token = ' ' // nothing but white space so far
	tokenEnd    token = 'e' // the end of the text
)

func newWalker(src io.Reader) walker {
	return walker{src: src, scanner: scanner{maxDepth: DefaultDepth}, window: make([]byte, 0, 4<<10), limit: maxWindow}
}

// place returns how far the text has been read.
func (w *walker) place() int { return w.base + w.pos }

// from returns the bytes from a place on that have been read.
func (w *walker) from(place int) []byte { return w.data[place-w.base : w.pos] }

// step reads the next token. If it returns none, walker.more tells why, or helps.
func (w *walker) step() token {
	open, names, unquoted := w.open, w.names, w.unquoted
	t, i := w.token()
	if i < 0 {
		w.open, w.names, w.unquoted = open, names, unquoted
		return tokenNone
	}
	w.pos = i
	return t
}

var errWindowFull = errors.New("the window is full")

// more reads more of the text after a step that found too little. It returns
// errWindowFull if there is no room for more, and another error if the text is
// refused or cannot be read.
func (w *walker) more() error {
	switch {
	case errors.Is(w.ended, io.EOF) && w.syntax != nil:
		return w.syntax
	case w.ended != nil:
		return w.ended
	}
	if n := w.keep - w.base; n > 0 {
		w.window = w.window[:copy(w.window, w.window[n:])]
		w.base, w.pos = w.base+n, w.pos-n
	}
	size := len(w.window)
	if size >= w.limit {
		w.data = w.window[:wholeRunes(w.window)]
		return errWindowFull
	}
	if size == cap(w.window) {
		w.window = append(make([]byte, 0, min(2*size, w.limit)), w.window...)
	}
	n := 0
	for tries := 0; n == 0 && w.ended == nil; tries++ {
		if n, w.ended = w.src.Read(w.window[size:min(cap(w.window), w.limit)]); tries > 100 {
			w.ended = io.ErrNoProgress
		}
	}
	w.window = w.window[:size+n]
	w.data, w.syntax = w.window, nil // what seemed wrong may have been incomplete
	if w.ended == nil {
		w.data = w.window[:wholeRunes(w.window)]
	}
	return nil
}

// wholeRunes returns how many bytes of p do not belong to a character whose end
// is missing.
func wholeRunes(p []byte) int {
	for i := len(p) - 1; i >= max(0, len(p)-utf8.UTFMax); i-- {
		if utf8.RuneStart(p[i]) {
			if utf8.FullRune(p[i:]) {
				break
			}
			return i
		}
	}
	return len(p)
}

// token returns the next token and where it ends, which is negative if there is
// none.
func (w *walker) token() (token, int) {
	if w.want == expectText {
		return tokenScalar, w.piece(w.pos)
	}
	i := w.space(w.pos)
	if i == len(w.data) && i > w.pos {
		return tokenSpace, i
	}
	c := w.at(i)
	switch {
	case w.want == expectEnd:
		return tokenEnd, w.end(i)
	case i == len(w.data):
		return tokenNone, w.unexpected(i)
	case w.want == expectNext, w.want == expectFirst && (c == ']' || c == '}'):
		return token(c), w.after(i)
	case w.expectsName():
		return tokenName, w.member(i)
	case c == '{', c == '[':
		return token(c), w.begin(i)
	default:
		return tokenScalar, w.plain(i)
	}
}

// end returns i if it is the end of the text.
func (w *walker) end(i int) int {
	switch {
	case i < len(w.data):
		return w.fail("bytes after the end of the JSON value")
	case !errors.Is(w.ended, io.EOF):
		return w.unexpected(i)
	default:
		return i
	}
}

func (w *walker) expectsName() bool {
	last := len(w.open) - 1
	return w.want != expectValue && last >= 0 && w.open[last] != inArray
}

// after moves past what follows an item.
func (w *walker) after(i int) int {
	i, more := w.next(i)
	switch {
	case i < 0:
	case more:
		w.want = expectItem
	default:
		w.valueEnds()
	}
	return i
}

func (w *walker) valueEnds() {
	w.want = expectNext
	if len(w.open) == 0 {
		w.want = expectEnd
	}
}

// member moves past the name of a member. Names that are to be told apart are
// copied, for the window moves on.
func (w *walker) member(i int) int {
	i = w.name(i)
	if i < 0 {
		return i
	}
	last := len(w.names) - 1
	n := &w.names[last]
	switch {
	case len(w.open) > w.deep:
		if n.escaped {
			w.unquoted = w.unquoted[:n.start]
		}
		w.names = w.names[:last]
	case len(w.unquoted)+n.end-n.start > maxWindow:
		return w.fail("too many members")
	case !n.escaped:
		start := len(w.unquoted)
		w.unquoted = append(w.unquoted, w.data[n.start:n.end]...)
		n.start, n.end, n.escaped = start, len(w.unquoted), true
	}
	w.want = expectValue
	return i
}

// begin moves past the bracket that opens an object or an array.
func (w *walker) begin(i int) int {
	if i = w.push(i); i >= 0 {
		w.want = expectFirst
	}
	return i
}

// plain moves past a value that is no object and no array, or into it if it is
// a string.
func (w *walker) plain(i int) int {
	if w.data[i] == '"' {
		w.want = expectText
		return i + 1
	}
	i = w.scalar(i)
	switch {
	case i < 0:
	case i == len(w.data) && w.ended == nil:
		return w.unexpected(i) // a number may go on
	default:
		w.valueEnds()
	}
	return i
}

// maxEscape is the length of the longest escape, which is a surrogate pair.
const maxEscape = len(`\ud83d\ude00`)

// piece moves on in a string, to its end or as far as it is there.
func (w *walker) piece(i int) int {
	start := i
	for {
		i, _ = skipText(w.data, i)
		switch c := w.at(i); {
		case i == len(w.data):
			if i == start {
				return w.unexpected(i)
			}
			return i
		case c == '"':
			w.valueEnds()
			return i + 1
		case c >= utf8.RuneSelf:
			i = w.multibyte(i)
		case c == '\\' && i > start && len(w.data)-i < maxEscape:
			return i
		case c == '\\':
			i = w.escape(i + 1)
		default:
			return w.unexpected(i)
		}
		if i < 0 {
			return i
		}
	}
}
