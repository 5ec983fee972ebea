package jsonrpc

import "bytes"

// A Member is a member of an object to be written. JSON is its value.
type Member struct {
	Name string
	JSON []byte
}

// AppendObject appends an object with the given members. Their values must be JSON, and their
// names must differ.
func AppendObject(dst []byte, members ...Member) []byte {
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(AppendString(dst, m.Name), ':'), m.JSON...)
	}
	return append(dst, '}')
}

// NewParams returns params with the given members, as [Parse] would return them.
func NewParams(members ...Member) Params {
	p := Params{Value: Value{Bytes: AppendObject(nil, members...)}}
	at := 1 // after the bracket
	for _, m := range members {
		at += len(AppendString(nil, m.Name)) + len(":")
		if known := p.known([]byte(m.Name)); known != nil {
			*known = p.part(at, len(m.JSON))
		}
		at += len(m.JSON) + len(",")
	}
	return p
}

// part returns a part of p.
func (p *Params) part(at, size int) Value {
	return Value{Bytes: p.Bytes[at : at+size : at+size], Offset: p.Offset + at}
}

// NewRequest returns a request, or a notification if id is nil, as [Parse] would return it. It
// omits absent params.
func NewRequest(id []byte, method string, params Params) Message {
	head := []byte(`{"jsonrpc":"2.0"`)
	m := Message{Method: method, Kind: Notification}
	if id != nil {
		head = append(head, `,"id":`...)
		m.Kind, m.ID.Offset = Request, len(head)
		head = append(head, id...)
	}
	head = AppendString(append(head, `,"method":`...), method)
	if params.Present() {
		head = append(head, `,"params":`...)
	}
	m.Raw = append(bytes.Join([][]byte{head, params.Bytes}, nil), '}')
	if id != nil {
		m.ID.Bytes = m.Raw[m.ID.Offset:][:len(id):len(id)]
	}
	if !params.Present() {
		return m
	}
	m.Params.Value = Value{Bytes: m.Raw[len(head) : len(m.Raw)-1 : len(m.Raw)-1], Offset: len(head)}
	for _, name := range paramNames {
		if had := params.known([]byte(name)); had.Present() {
			*m.Params.known([]byte(name)) = m.Params.part(had.Offset-params.Offset, len(had.Bytes))
		}
	}
	return m
}
