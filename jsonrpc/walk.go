package jsonrpc

import (
	"errors"
	"io"
	"unicode/utf8"
)

// A walker tokenizes a text of any size with a scanner, and holds only a window of the text. If
// a token is incomplete, it reads more and scans the token again. Only string values may be
// longer than the window; they are read in pieces.
//
// Positions that outlive a step count from the start of the text.
type walker struct {
	scanner scanner

	src         io.Reader
	window      []byte // bytes of src; the scanner gets the complete characters of it
	limit       int    // maximum size of the window
	ended       error  // why src has no more bytes
	err         error  // why there are no more tokens
	release     func() // called before the window moves; may set keep
	keep        int    // position from which bytes are still needed
	pos         int    // index of the next byte in data
	at          int    // position of the last token
	want        expected
	uniqueDepth int // objects nested deeper may repeat names
}

// maxWindow is the maximum size of the window.
const maxWindow = 64 << 10

// expected is the kind of input that may come next.
type expected uint8

const (
	expectValue expected = iota
	expectFirst          // first item or closing bracket
	expectItem           // item
	expectNext           // comma or closing bracket
	expectText           // rest of a string
	expectEnd            // white space
)

// A token is the result of one step. Brackets and commas are their own tokens.
type token byte

const (
	tokenNone   token = 0   // incomplete or invalid
	tokenName   token = 'n' // member name and colon
	tokenScalar token = 's' // number, literal, or piece of a string
	tokenSpace  token = ' ' // only white space so far
	tokenEnd    token = 'e' // end of the text
)

func newWalker(src io.Reader) walker {
	return walker{src: src, scanner: scanner{maxDepth: DefaultDepth}, window: make([]byte, 0, 4<<10), limit: maxWindow, uniqueDepth: 1}
}

// place returns the current position.
func (w *walker) place() int { return w.scanner.base + w.pos }

// from returns the bytes read since a position.
func (w *walker) from(place int) []byte { return w.scanner.data[place-w.scanner.base : w.pos] }

// depth returns the nesting depth.
func (w *walker) depth() int { return len(w.scanner.open) }

// next returns the next token except white space. Without a token, walker.err has the reason.
func (w *walker) next() token {
	for w.err == nil {
		w.at = w.place()
		switch t := w.step(); t {
		case tokenSpace:
		case tokenNone:
			w.refill()
		default:
			return t
		}
	}
	return tokenNone
}

// refill reads more of the text and drops the bytes before the current token.
func (w *walker) refill() {
	w.keep = w.at
	if w.release != nil {
		w.release()
	}
	err := w.more()
	if errors.Is(err, errWindowFull) {
		err = w.tooLong()
	}
	w.fail(err)
}

// fail stops the walker with the first error.
func (w *walker) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// finish reads to the end of a value in an object of the given depth. Unless kept is nil, it
// appends the value to kept.
func (w *walker) finish(depth int, kept *[]byte) {
	for w.err == nil && (w.want != expectNext || w.depth() > depth) {
		if w.next(); kept == nil || w.err != nil {
			continue
		}
		if *kept = append(*kept, w.from(w.at)...); len(*kept) > maxWindow {
			w.fail(ErrTooLarge)
		}
	}
}

// tooLong returns why a step failed with a full window.
func (w *walker) tooLong() error {
	if w.scanner.syntax.Reason == incomplete {
		return ErrTooLarge
	}
	return w.scanner.syntax
}

// step returns the next token. On tokenNone, call walker.more.
func (w *walker) step() token {
	open, names, unquoted := w.scanner.open, w.scanner.names, w.scanner.unquoted
	t, i := w.token()
	if i < 0 {
		w.scanner.open, w.scanner.names, w.scanner.unquoted = open, names, unquoted
		return tokenNone
	}
	w.pos = i
	return t
}

var errWindowFull = errors.New("the window is full")

// more reads more of the text after an incomplete step. It returns errWindowFull if the window
// is full, and another error if the text is invalid or cannot be read.
func (w *walker) more() error {
	switch {
	case errors.Is(w.ended, io.EOF) && w.scanner.syntax != nil:
		return w.scanner.syntax
	case w.ended != nil:
		return w.ended
	}
	if n := w.keep - w.scanner.base; n > 0 {
		w.window = w.window[:copy(w.window, w.window[n:])]
		w.scanner.base, w.pos = w.scanner.base+n, w.pos-n
	}
	size := len(w.window)
	if size >= w.limit {
		w.scanner.data = w.window[:wholeRunes(w.window)]
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
	w.scanner.data, w.scanner.syntax = w.window, nil // an error may have been caused by the incomplete window
	if w.ended == nil {
		w.scanner.data = w.window[:wholeRunes(w.window)]
	}
	return nil
}

// wholeRunes returns the length of p without an incomplete last character.
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

// token returns the next token and its end, or a negative end.
func (w *walker) token() (token, int) {
	if w.want == expectText {
		return tokenScalar, w.piece(w.pos)
	}
	i := w.scanner.space(w.pos)
	if i == len(w.scanner.data) && i > w.pos {
		return tokenSpace, i
	}
	c := w.scanner.at(i)
	switch {
	case w.want == expectEnd:
		return tokenEnd, w.end(i)
	case i == len(w.scanner.data):
		return tokenNone, w.scanner.unexpected(i)
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

// end returns i if the text ends there.
func (w *walker) end(i int) int {
	switch {
	case i < len(w.scanner.data):
		return w.scanner.fail("bytes after the end of the JSON value")
	case !errors.Is(w.ended, io.EOF):
		return w.scanner.unexpected(i)
	default:
		return i
	}
}

func (w *walker) expectsName() bool {
	last := len(w.scanner.open) - 1
	return w.want != expectValue && last >= 0 && w.scanner.open[last] != inArray
}

// after moves past the comma or bracket after an item.
func (w *walker) after(i int) int {
	i, more := w.scanner.next(i)
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
	if len(w.scanner.open) == 0 {
		w.want = expectEnd
	}
}

// member moves past a member name. Names that must be unique are copied, because the window
// moves.
func (w *walker) member(i int) int {
	i = w.scanner.name(i)
	if i < 0 {
		return i
	}
	last := len(w.scanner.names) - 1
	n := &w.scanner.names[last]
	switch {
	case len(w.scanner.open) > w.uniqueDepth:
		if n.escaped {
			w.scanner.unquoted = w.scanner.unquoted[:n.start]
		}
		w.scanner.names = w.scanner.names[:last]
	case len(w.scanner.unquoted)+n.end-n.start > maxWindow:
		return w.scanner.fail("too many members")
	case !n.escaped:
		start := len(w.scanner.unquoted)
		w.scanner.unquoted = append(w.scanner.unquoted, w.scanner.data[n.start:n.end]...)
		n.start, n.end, n.escaped = start, len(w.scanner.unquoted), true
	}
	w.want = expectValue
	return i
}

// begin moves past an opening bracket.
func (w *walker) begin(i int) int {
	if i = w.scanner.push(i); i >= 0 {
		w.want = expectFirst
	}
	return i
}

// plain moves past a number or literal, or past the opening quote of a string.
func (w *walker) plain(i int) int {
	if w.scanner.data[i] == '"' {
		w.want = expectText
		return i + 1
	}
	i = w.scanner.scalar(i)
	switch {
	case i < 0:
	case i == len(w.scanner.data) && w.ended == nil:
		return w.scanner.unexpected(i) // a number may continue
	default:
		w.valueEnds()
	}
	return i
}

// maxEscape is the length of the longest escape, a surrogate pair.
const maxEscape = len(`\ud83d\ude00`)

// piece moves to the end of a string, or of the available part.
func (w *walker) piece(i int) int {
	start := i
	for {
		i, _ = skipText(w.scanner.data, i)
		switch c := w.scanner.at(i); {
		case i == len(w.scanner.data):
			if i == start {
				return w.scanner.unexpected(i)
			}
			return i
		case c == '"':
			w.valueEnds()
			return i + 1
		case c >= utf8.RuneSelf:
			i = w.scanner.multibyte(i)
		case c == '\\' && i > start && len(w.scanner.data)-i < maxEscape:
			return i
		case c == '\\':
			i = w.scanner.escape(i + 1)
		default:
			return w.scanner.unexpected(i)
		}
		if i < 0 {
			return i
		}
	}
}
