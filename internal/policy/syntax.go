package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Errors of the Cedar parser are only text: a position before a message; an unexpected token
// with the position of the token after it; a number out of range without a position.
var (
	positioned  = regexp.MustCompile(`^(?:parse error at )?<input>:(\d+):(\d+):? (.*)$`)
	wrongToken  = regexp.MustCompile(`^".*": exact got (.*) want (.+)$`)
	largeNumber = regexp.MustCompile(`^strconv\.ParseInt: parsing "(\d+)": value out of range$`)
)

// syntaxProblem returns an error of the Cedar parser in plain words, with the position of
// the unexpected token.
func syntaxProblem(s Source, err error) Problem {
	p := Problem{Place: Place{Source: s.Name}, Text: err.Error()}
	message, syntax := strings.CutPrefix(p.Text, "parser error: ")
	if !syntax {
		return p
	}
	if m := positioned.FindStringSubmatch(message); m != nil {
		p.Place.Line, _ = strconv.Atoi(m[1])
		p.Place.Column, _ = strconv.Atoi(m[2])
		message = m[3]
	}
	text := string(s.Text)
	if m := wrongToken.FindStringSubmatch(message); m != nil {
		if m[1] == "" {
			p.Text = fmt.Sprintf("not Cedar: expected %q at the end", m[2])
			return p
		}
		p.Text = fmt.Sprintf("not Cedar: expected %q before %q", m[2], m[1])
		p.Place.pointAt(text, strings.LastIndex(text[:p.Place.offset(text)], m[1]))
		return p
	}
	if m := largeNumber.FindStringSubmatch(message); m != nil {
		p.Text = "not Cedar: the number " + m[1] + " does not fit into 64 bits"
		p.Place.pointAt(text, strings.Index(text, m[1]))
		return p
	}
	p.Text = "not Cedar: " + message
	return p
}

// offset returns the index of p in text. Lines and columns count from 1.
func (p Place) offset(text string) int {
	start := 0
	for range p.Line - 1 {
		start += strings.IndexByte(text[start:], '\n') + 1
	}
	column := 1
	for i := range text[start:] {
		if column == p.Column {
			return start + i
		}
		column++
	}
	return len(text)
}

// pointAt sets the line and the column of an index in text, unless it is negative.
func (p *Place) pointAt(text string, index int) {
	if index < 0 {
		return
	}
	before := text[:index]
	p.Line = strings.Count(before, "\n") + 1
	p.Column = utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
}
