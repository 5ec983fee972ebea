// Package jsonrpc parses JSON-RPC 2.0 messages strictly and keeps their bytes.
//
// A program that checks messages between two parties must read them as the receiver will.
// [Parse] therefore refuses input that parsers read differently: duplicate member names, known
// names in other case, requests with a member __proto__ or with U+0000 in a name, invalid UTF-8
// and deep nesting. A [Value] is a range of the received bytes. A [Patch] changes values and
// keeps all other bytes:
//
//	packet, err := jsonrpc.Parse(body, jsonrpc.Limits{})
//	m := packet.Messages[0]
//	var p jsonrpc.Patch
//	p.Replace(m.ID, []byte(`"7"`))
//	body = p.Apply(m.Raw)
//
// [EventReader], [Framer] and [AppendEvent] read, relay and write Server-Sent Events;
// [LineReader] reads newline-delimited JSON. The package does not depend on MCP or HTTP.
// Authors of servers need only [Error].
package jsonrpc

import (
	"bytes"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// A Kind is the kind of a message.
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

// A Packet is the content of one HTTP body or one line: a message or a batch.
type Packet struct {
	Batch    bool
	Messages []Message // never empty; exactly one unless Batch
}

// A Message is one JSON-RPC message. Its values alias the bytes given to [Parse], which must
// not change.
type Message struct {
	Raw    []byte // the message without surrounding white space
	Kind   Kind
	ID     Value  // absent in notifications; absent or null in errors about unreadable requests
	Method string // empty in responses
	Params Params
	Result Value
	Error  Value
}

// Params is the params member of a message with its relevant members, which are absent unless
// params is an object.
type Params struct {
	Value

	Name      Value
	URI       Value
	TaskID    Value
	Task      Value
	Meta      Value
	Arguments Value
}

// A Value is a valid JSON value as received. The zero Value is absent.
type Value struct {
	Bytes  []byte // aliases the bytes given to Parse
	Offset int    // position of Bytes in the message, or in the enclosing Value
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

// IsEmptyObject reports whether v is an object without members.
func (v Value) IsEmptyObject() bool {
	for range v.members() {
		return false
	}
	return v.IsObject()
}

// IsArray reports whether v is a JSON array.
func (v Value) IsArray() bool { return len(v.Bytes) > 0 && v.Bytes[0] == '[' }

// IsString reports whether v is a JSON string.
func (v Value) IsString() bool { return len(v.Bytes) > 0 && v.Bytes[0] == '"' }

// Text returns the decoded string, and whether v is a string.
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

// Int returns the integer, and whether v is written as an integer that fits int64.
func (v Value) Int() (int64, bool) {
	n, err := strconv.ParseInt(string(v.Bytes), 10, 64)
	return n, err == nil
}

// Member returns the member with the given name. It is absent if there is none or v is not an
// object.
func (v Value) Member(name string) Value {
	for n, member := range v.members() {
		if string(n) == name {
			return member
		}
	}
	return Value{}
}

// Members iterates over the members of v in order. It yields nothing unless v is an object.
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

// Elements iterates over the elements of v in order. It yields nothing unless v is an array.
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

// Without returns object v without the named members. White space between members is removed.
func (v Value) Without(names ...string) []byte {
	var kept []Member
	for name, member := range v.Members() {
		if !slices.Contains(names, name) {
			kept = append(kept, Member{Name: name, JSON: member.Bytes})
		}
	}
	return AppendObject(nil, kept...)
}
