package policy

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of what is mapped. Those on arrays are there because the time that
// cedar-go takes to build a set grows with the square of its size if a caller
// chooses the elements so that their hashes are equal.
const (
	maxDepth    = 32
	maxElements = 1000
	maxValues   = 10_000
)

// A mappingError says why arguments have no Cedar form. Its text may hold the
// name of an argument; problem never does.
type mappingError struct {
	member  string // of the arguments; empty if it concerns them all
	problem string // what the arguments have
}

func (e *mappingError) Error() string {
	if e.member == "" {
		return e.problem
	}
	return strconv.Quote(e.member) + ": " + e.problem
}

// A mapper turns JSON into Cedar values. Cedar's own decoder is not used: it
// would let a caller write entities and dates.
type mapper struct {
	dec     *jsontext.Decoder
	wanted  selectedNames
	number  func(literal string) (types.Value, error)
	values  int    // that were mapped so far
	current string // member of the arguments that is being mapped
}

// selectedNames are the names of arguments that policies read.
type selectedNames struct {
	read    func(types.String) bool // of arguments
	variant func(types.String) bool // at any depth: whether a name differs only by case from one that is read
}

// mapArguments returns those members of arguments that are wanted. Numbers are
// mapped by number.
func mapArguments(arguments jsontext.Value, wanted selectedNames, number func(string) (types.Value, error)) (types.Record, error) {
	m := mapper{dec: jsontext.NewDecoder(bytes.NewBuffer(arguments)), wanted: wanted, number: number}
	switch m.dec.PeekKind() {
	case jsontext.KindNull:
		return types.Record{}, m.end(m.dec.SkipValue())
	case jsontext.KindBeginObject:
		record, err := m.object(1, wanted.read)
		return record, m.end(err)
	default:
		if len(arguments) == 0 {
			return types.Record{}, nil
		}
		return types.Record{}, &mappingError{problem: "no members: they are not a JSON object"}
	}
}

// end checks that nothing follows the arguments, and makes every error of the
// mapping one that can be told.
func (m *mapper) end(err error) error {
	if err == nil {
		if _, err = m.dec.ReadToken(); errors.Is(err, io.EOF) {
			return nil
		}
		return &mappingError{problem: "text after their end"}
	}
	if mapping, ok := errors.AsType[*mappingError](err); ok {
		return mapping
	}
	return &mappingError{member: m.current, problem: "invalid JSON or a duplicate name"}
}

func (m *mapper) fail(problem string) error {
	return &mappingError{member: m.current, problem: problem}
}

func everything(types.String) bool { return true }

func (m *mapper) object(depth int, wanted func(types.String) bool) (types.Record, error) {
	if _, err := m.dec.ReadToken(); err != nil {
		return types.Record{}, err
	}
	members := types.RecordMap{}
	for m.dec.PeekKind() != jsontext.KindEndObject {
		token, err := m.dec.ReadToken()
		if err != nil {
			return types.Record{}, err
		}
		name := types.String(token.String())
		if depth == 1 {
			m.current = string(name)
		}
		if m.wanted.variant(name) {
			return types.Record{}, m.fail("a name that differs only by case from one that policies read")
		}
		if !wanted(name) {
			if err := m.dec.SkipValue(); err != nil {
				return types.Record{}, err
			}
			continue
		}
		if members[name], err = m.value(depth); err != nil {
			return types.Record{}, err
		}
	}
	_, err := m.dec.ReadToken()
	return types.NewRecord(members), err
}

func (m *mapper) array(depth int) (types.Value, error) {
	if _, err := m.dec.ReadToken(); err != nil {
		return nil, err
	}
	var elements []types.Value
	for m.dec.PeekKind() != jsontext.KindEndArray {
		if len(elements) == maxElements {
			return nil, m.fail("an array of more than " + strconv.Itoa(maxElements) + " elements")
		}
		v, err := m.value(depth)
		if err != nil {
			return nil, err
		}
		elements = append(elements, v)
	}
	_, err := m.dec.ReadToken()
	return types.NewSet(elements...), err
}

// value maps the next value, which stands in something that is depth deep.
func (m *mapper) value(depth int) (types.Value, error) {
	if m.values++; m.values > maxValues {
		return nil, m.fail("more than " + strconv.Itoa(maxValues) + " values")
	}
	kind := m.dec.PeekKind()
	if kind != jsontext.KindBeginObject && kind != jsontext.KindBeginArray {
		return m.scalar()
	}
	if depth == maxDepth {
		return nil, m.fail("a value nested deeper than " + strconv.Itoa(maxDepth))
	}
	if kind == jsontext.KindBeginArray {
		return m.array(depth + 1)
	}
	return m.object(depth+1, everything)
}

func (m *mapper) scalar() (types.Value, error) {
	token, err := m.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case jsontext.KindNull:
		return types.NewEntityUID(typeNull, "null"), nil
	case jsontext.KindTrue, jsontext.KindFalse:
		return types.Boolean(token.Bool()), nil
	case jsontext.KindString:
		return types.String(token.String()), nil
	default:
		v, err := m.number(token.String())
		if err != nil {
			return nil, m.fail(err.Error())
		}
		return v, nil
	}
}

var (
	errTooLarge = errors.New("a number beyond 64 bits")
	errTooFine  = errors.New("a number with more than four decimals")
	errRounded  = errors.New("a number that servers round to another one")
)

// wholeOrDecimal maps a whole number to a long and another one to a decimal.
func wholeOrDecimal(text string) (types.Value, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		digits, exponent := scientific(text)
		if exponent < 0 {
			return decimal(digits, exponent)
		}
		if n, err = shifted(digits, exponent); err != nil {
			return nil, err
		}
	}
	if !kept(n) {
		return nil, errRounded
	}
	return types.Long(n), nil
}

// kept reports whether a server that reads every number as a 64-bit float, as
// JavaScript does, reads n as n.
func kept(n int64) bool {
	const exact = 1 << 53 // up to here all of them are
	if -exact <= n && n <= exact {
		return true
	}
	f := float64(n)
	return f < 1<<63 && int64(f) == n
}

// alwaysDecimal maps every number to a decimal.
func alwaysDecimal(text string) (types.Value, error) {
	return decimal(scientific(text))
}

func decimal(digits string, exponent int) (types.Value, error) {
	if exponent < -4 {
		return nil, errTooFine
	}
	n, err := shifted(digits, exponent+4)
	if err != nil {
		return nil, err
	}
	if rounded(digits, exponent) {
		return nil, errRounded
	}
	return types.NewDecimal(n, -4)
}

// rounded reports whether a server that reads every number as a 64-bit float
// reads this one as another.
func rounded(digits string, exponent int) bool {
	if len(digits) <= 15 {
		return false // so many digits always survive
	}
	f, err := strconv.ParseFloat(digits+"e"+strconv.Itoa(exponent), 64)
	if err != nil {
		return true
	}
	again, place := scientific(strconv.FormatFloat(f, 'e', -1, 64))
	return again != digits || place != exponent
}

// scientific returns the digits, signed and without a zero at either end, and
// the exponent of ten by which they make up the JSON number text. The number 0
// has one digit.
func scientific(text string) (digits string, exponent int) {
	text = strings.ToLower(text)
	mantissa, e, _ := strings.Cut(text, "e")
	// An exponent beyond int is as good as the greatest one: JSON has no room
	// for the digits that could make up for it.
	exponent, _ = strconv.Atoi(e)
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	all := strings.TrimLeft(whole+fraction, "0")
	digits = strings.TrimRight(all, "0")
	if digits == "" {
		return "0", 0
	}
	const far = 1 << 30 // so that the sum does not overflow
	exponent = max(-far, min(exponent, far)) - len(fraction) + len(all) - len(digits)
	if mantissa[0] == '-' {
		digits = "-" + digits
	}
	return digits, exponent
}

// shifted returns digits times ten to the power of places, which is not negative.
func shifted(digits string, places int) (int64, error) {
	if places > 19 {
		return 0, errTooLarge
	}
	n, err := strconv.ParseInt(digits+strings.Repeat("0", places), 10, 64)
	if err != nil {
		return 0, errTooLarge
	}
	return n, nil
}
