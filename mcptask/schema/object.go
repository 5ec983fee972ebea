package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// An Object is a JSON object that keeps the order of its members and the text of their values,
// so that messages of a peer can be forwarded unchanged. The nil Object means an absent object,
// and an empty Object is {}.
type Object []Member

// A Member is a name and a value of an [Object].
type Member struct {
	Name  string
	Value json.RawMessage
}

// Get returns the value of the member called name. It reports false if there is none.
func (o Object) Get(name string) (json.RawMessage, bool) {
	if i := o.index(name); i >= 0 {
		return o[i].Value, true
	}
	return nil, false
}

// With returns a copy of o in which the member called name has the given value. A new member is
// added at the end.
func (o Object) With(name string, value json.RawMessage) Object {
	set := Member{Name: name, Value: value}
	i := o.index(name)
	if i < 0 {
		return append(slices.Clip(o), set)
	}
	changed := slices.Clone(o)
	changed[i] = set
	return changed
}

// Without returns a copy of o without the member called name.
func (o Object) Without(name string) Object {
	i := o.index(name)
	if i < 0 {
		return o
	}
	return slices.Delete(slices.Clone(o), i, i+1)
}

func (o Object) index(name string) int {
	return slices.IndexFunc(o, func(m Member) bool { return m.Name == name })
}

// Text returns o as JSON. The values must be valid.
func (o Object) Text() json.RawMessage {
	text := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(jsonrpc.AppendString(text, m.Name), ':')
		text = append(text, m.Value...)
	}
	return append(text, '}')
}

// MarshalJSON implements [encoding/json.Marshaler]. It writes the members in order, and {} if
// there are none. It fails if a name occurs twice.
func (o Object) MarshalJSON() ([]byte, error) {
	text := jsontext.Value(o.Text())
	return text, text.Format(jsontext.PreserveRawStrings(true)) // Format checks the values
}

// UnmarshalJSON implements [encoding/json.Unmarshaler]. It reads an object, or null as an
// absent object.
func (o *Object) UnmarshalJSON(text []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	switch kind := dec.PeekKind(); kind {
	case jsontext.KindNull:
		*o = nil
		return nil
	case jsontext.KindBeginObject:
		return o.readMembers(dec)
	case jsontext.KindInvalid:
		_, err := dec.ReadToken()
		return err
	default:
		return fmt.Errorf("want an object, have a JSON %s", kind)
	}
}

func (o *Object) readMembers(dec *jsontext.Decoder) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	members := Object{}
	for dec.PeekKind() != jsontext.KindEndObject {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		m := Member{Name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		m.Value = bytes.Clone(value)
		members = append(members, m)
	}
	*o = members
	_, err := dec.ReadToken()
	return err
}
