package jsonrpc

// dive reads on while that is in arrays and objects which are nested deeper than
// depth, as far as the window goes.
func (w *walker) dive(depth int) {
	for len(w.open) > depth {
		for len(w.open) > max(depth, w.deep) && w.hurry() {
		}
		if len(w.open) > depth && w.step() == tokenNone {
			return
		}
	}
}

// hurry moves past one token where nobody needs its name or its value, and
// reports whether it did. It knows only what is plain and whole, which is most of a
// text, and leaves everything else to walker.step, which agrees with it.
func (w *walker) hurry() bool {
	i := w.space(w.pos)
	array, end := w.open[len(w.open)-1] == inArray, byte('}')
	if array {
		end = ']'
	}
	switch {
	case w.want == expectText:
		return false
	case w.hurryEnd(i, end):
		return true
	case w.want == expectNext:
		return w.hurryComma(i)
	case w.want != expectValue && !array:
		return w.hurryName(i)
	default:
		return w.hurryBegin(i) || w.hurryScalar(i)
	}
}

// hurryEnd moves past end, the end of the array or object.
func (w *walker) hurryEnd(i int, end byte) bool {
	if w.want != expectNext && w.want != expectFirst || w.at(i) != end {
		return false
	}
	w.open = w.open[:len(w.open)-1]
	w.pos = i + 1
	w.valueEnds()
	return true
}

// hurryComma moves past the comma between two items.
func (w *walker) hurryComma(i int) bool {
	if w.at(i) != ',' {
		return false
	}
	w.want, w.pos = expectItem, i+1
	return true
}

// hurryBegin moves past the beginning of an array or an object, unless it is nested
// too deep.
func (w *walker) hurryBegin(i int) bool {
	if c := w.at(i); c != '{' && c != '[' || len(w.open) >= w.maxDepth {
		return false
	}
	w.pos = w.begin(i)
	return true
}

// hurryName moves past the name of a member. One that may be of interest however
// deep it is begins with an underscore.
func (w *walker) hurryName(i int) bool {
	end := w.plainText(i)
	if end < 0 || w.data[i+1] == prototype[0] {
		return false
	}
	if i = w.space(end); w.at(i) != ':' {
		return false
	}
	w.want, w.pos = expectValue, i+1
	return true
}

// hurryScalar moves past a string or a whole number.
func (w *walker) hurryScalar(i int) bool {
	end := w.plainText(i)
	if end < 0 {
		end = w.wholeNumber(i)
	}
	if end < 0 {
		return false
	}
	w.want, w.pos = expectNext, end
	return true
}

// plainText returns where the string at i ends, and -1 if there is none, it has
// escapes or letters that are not of ASCII, or its end is not there.
func (w *walker) plainText(i int) int {
	if w.at(i) != '"' {
		return -1
	}
	i++
	if i += plainLen(w.data[i:]); w.at(i) != '"' {
		return -1
	}
	return i + 1
}

// wholeNumber returns where the number at i ends, and -1 if there is none, it is not
// a whole one other than zero, or it may go on.
func (w *walker) wholeNumber(i int) int {
	if w.at(i) == '-' {
		i++
	}
	if c := w.at(i); c < '1' || c > '9' {
		return -1
	}
	for i < len(w.data) && w.data[i]-'0' <= 9 {
		i++
	}
	if c := w.at(i); i == len(w.data) || c == '.' || c|0x20 == 'e' {
		return -1
	}
	return i
}
