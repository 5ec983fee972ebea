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

// Bounds of arguments. Arrays are bounded because building a set in cedar-go takes quadratic
// time if a caller chooses elements with equal hashes.
const (
	maxDepth    = 32
	maxElements = 1000
	maxValues   = 10_000
)

// A mappingError is the reason why arguments have no Cedar form. Its text may have the name
// of an argument; problem does not.
type mappingError struct {
	member  string // of the arguments; may be empty
	problem string // follows "the arguments have"
}

func (e *mappingError) Error() string {
	if e.member == "" {
		return e.problem
	}
	return strconv.Quote(e.member) + ": " + e.problem
}

// A mapper turns JSON into Cedar values. The decoder of cedar-go would let a caller write
// entities and dates.
type mapper struct {
	dec     *jsontext.Decoder
	wanted  selectedNames
	number  func(literal string) (types.Value, error)
	values  int    // mapped so far
	current string // the member of the arguments that is being mapped
}

// selectedNames are the names of arguments that policies read.
type selectedNames struct {
	read    func(types.String) bool // reports whether a policy reads the argument
	variant func(types.String) bool // reports whether a name, at any depth, differs only by case from one that is read
}

// mapArguments returns the wanted members of arguments. The function number maps numbers.
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

// end checks that nothing follows the arguments, and returns err as a mappingError.
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
		//mutate:false TestCedarVerdicts policies miss names in another case
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

// value maps the next value, inside a value at the given depth.
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
	//mutate:false Test(Numbers|CedarVerdicts) policies read numbers that servers round
	if !exactInFloat(n) {
		return nil, errRounded
	}
	return types.Long(n), nil
}

// exactInFloat reports whether servers that read numbers as 64-bit floats, as JavaScript does,
// read n exactly.
func exactInFloat(n int64) bool {
	const exact = 1 << 53 // up to here all integers are exact
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

// rounded reports whether servers that read numbers as 64-bit floats read another number.
func rounded(digits string, exponent int) bool {
	if len(digits) <= 15 {
		return false // a float keeps 15 digits
	}
	f, err := strconv.ParseFloat(digits+"e"+strconv.Itoa(exponent), 64)
	if err != nil {
		return true
	}
	again, place := scientific(strconv.FormatFloat(f, 'e', -1, 64))
	return again != digits || place != exponent
}

// scientific splits a JSON number into digits, signed and without a zero at either end, and an
// exponent of ten. The number 0 has one digit.
func scientific(text string) (digits string, exponent int) {
	text = strings.ToLower(text)
	mantissa, e, _ := strings.Cut(text, "e")
	// Atoi returns the nearest int for an exponent out of range, which is far enough: no
	// request has enough digits to compensate.
	exponent, _ = strconv.Atoi(e)
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	all := strings.TrimLeft(whole+fraction, "0")
	digits = strings.TrimRight(all, "0")
	if digits == "" {
		return "0", 0
	}
	const far = 1 << 30 // prevents an overflow of the sum
	exponent = max(-far, min(exponent, far)) - len(fraction) + len(all) - len(digits)
	if mantissa[0] == '-' {
		digits = "-" + digits
	}
	return digits, exponent
}

// shifted returns digits times ten to the power of places, which must not be negative.
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
