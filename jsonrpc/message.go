// Package jsonrpc reads JSON-RPC 2.0 messages strictly and without losing a
// byte of them.
//
// A program that judges messages on their way from one party to another must
// read them exactly as the receiver will. So [Parse] refuses whatever two
// parsers could read differently (duplicate member names, case variants of the
// members it looks at, requests with a member called __proto__ or with U+0000 in a
// name, invalid UTF-8, excessive depth) and keeps the bytes as they came: members are
// found as a [Value], a range of the received bytes, and changed by a [Patch], which
// leaves every other byte alone.
//
// The package also frames messages: [EventReader] and [AppendEvent] for
// Server-Sent Events, [Framer] for relaying such streams, and [LineReader] for
// newline-delimited JSON. It knows nothing of MCP methods, HTTP or policy.
//
// The package is for programs that relay or judge messages. The author of a server needs
// no more of it than [Error].
package jsonrpc

import (
	"bytes"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// A Kind says which of the three shapes of JSON-RPC a message has.
type Kind uint8

// The kinds of messages.
const (
	Request      Kind = iota + 1 // has a method and an id
	Notification                 // has a method and no id
	Response                     // has a result or an error
)

// String returns the name of the kind.
func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Response:
		return "response"
	default:
		return "invalid"
	}
}

// A Packet is what one HTTP body or one line holds: a message, or a batch of
// them.
type Packet struct {
	Batch    bool
	Messages []Message // exactly one unless Batch, never empty
}

// A Message is one JSON-RPC message. Its values alias the bytes given to
// [Parse], which must not be changed while the message is in use.
type Message struct {
	Raw    []byte // the message itself, without surrounding white space
	Kind   Kind
	ID     Value  // absent on notifications; absent or null on errors about unreadable requests
	Method string // empty on responses
	Params Params
	Result Value
	Error  Value
}

// Params is the params member of a message, with those of its members that
// decide what the message is about. All are absent when params is no object.
type Params struct {
	Value

	Name      Value
	URI       Value
	TaskID    Value
	Task      Value
	Meta      Value
	Arguments Value
}

// A Value is one JSON value of a message, as it was received, and so known to
// be valid. The zero Value is an absent one.
type Value struct {
	Bytes  []byte // aliases the bytes given to Parse
	Offset int    // where Bytes begins in them
}

// Clone returns a copy of v that does not refer to the message.
func (v Value) Clone() Value { return Value{Bytes: bytes.Clone(v.Bytes)} }

// Present reports whether the message has the value.
func (v Value) Present() bool { return v.Bytes != nil }

// IsNull reports whether v is the literal null.
func (v Value) IsNull() bool { return string(v.Bytes) == "null" }

// IsTrue reports whether v is the literal true.
func (v Value) IsTrue() bool { return string(v.Bytes) == "true" }

// IsObject reports whether v is a JSON object.
func (v Value) IsObject() bool { return len(v.Bytes) > 0 && v.Bytes[0] == '{' }

// IsArray reports whether v is a JSON array.
func (v Value) IsArray() bool { return len(v.Bytes) > 0 && v.Bytes[0] == '[' }

// IsString reports whether v is a JSON string.
func (v Value) IsString() bool { return len(v.Bytes) > 0 && v.Bytes[0] == '"' }

// Text returns the decoded text of a JSON string, and whether v is one.
func (v Value) Text() (string, bool) {
	if !v.IsString() {
		return "", false
	}
	if inner := v.Bytes[1 : len(v.Bytes)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	text, err := jsontext.AppendUnquote(nil, v.Bytes)
	return string(text), err == nil
}

// Int returns the value of a JSON number that is written as an integer
// fitting int64, and whether v is one.
func (v Value) Int() (int64, bool) {
	n, err := strconv.ParseInt(string(v.Bytes), 10, 64)
	return n, err == nil
}

// Member returns the member of object v with the given name. It is absent when
// v is no object or has no such member.
func (v Value) Member(name string) Value {
	for n, member := range v.members() {
		if string(n) == name {
			return member
		}
	}
	return Value{}
}

// Members ranges over the members of object v, in their order. A value that is
// no object has none.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for name, member := range v.members() {
			if !yield(string(name), member) {
				return
			}
		}
	}
}

func (v Value) members() iter.Seq2[[]byte, Value] {
	return func(yield func([]byte, Value) bool) {
		if !v.IsObject() {
			return
		}
		s := newScanner(v.Bytes, v.Offset, math.MaxInt)
		defer s.release()
		i, more := s.enter(0)
		for more {
			if i = s.name(i); i < 0 {
				return
			}
			name := s.lastName()
			var member Value
			if member, i = s.value(i); i < 0 || !yield(name, member) {
				return
			}
			i, more = s.next(i)
		}
	}
}

// Elements ranges over the elements of array v, in their order. A value that
// is no array has none.
func (v Value) Elements() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if !v.IsArray() {
			return
		}
		s := newScanner(v.Bytes, v.Offset, math.MaxInt)
		defer s.release()
		i, more := s.enter(0)
		for more {
			var element Value
			if element, i = s.value(i); i < 0 || !yield(element) {
				return
			}
			i, more = s.next(i)
		}
	}
}

// Without returns object v without the members of the given names. The other
// members keep their bytes; the white space between them does not stay.
func (v Value) Without(names ...string) []byte {
	out := []byte{'{'}
	for name, member := range v.Members() {
		if slices.Contains(names, name) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(AppendString(out, name), ':')
		out = append(out, member.Bytes...)
	}
	return append(out, '}')
}
