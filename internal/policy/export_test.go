package policy

import "github.com/cedar-policy/cedar-go/types"

// Schema returns the Cedar schema that policies are checked against.
func Schema() []byte { return schemaText }

// MapAll maps all members of arguments.
func MapAll(arguments []byte) (types.Record, error) {
	return mapArguments(arguments, selectedNames{read: everything, variant: func(types.String) bool { return false }}, wholeOrDecimal)
}

// MapDecimals maps all members of arguments, with every number as a decimal.
func MapDecimals(arguments []byte) (types.Record, error) {
	return mapArguments(arguments, selectedNames{read: everything, variant: func(types.String) bool { return false }}, alwaysDecimal)
}

// Question returns c as the policies get it, with the whole context.
func (s *Snapshot) Question(c Call) (types.Request, types.EntityMap, error) {
	kind, _ := Governed(c.Method)
	q := newQuestion(&c, kind, s.zone)
	all := &reading{context: reads{all: true}, arguments: reads{all: true}, decimals: reads{all: true}}
	request, err := q.request(selection{readings: []*reading{all}})
	entities := types.EntityMap{}
	for _, uid := range append(q.groups, q.principal, q.resource, q.upstream) {
		entities[uid], _ = q.Get(uid)
	}
	return request, entities, err
}

// Covers reports whether the check for shadowed rules finds that the first pattern matches
// every name that the second one matches.
func Covers(wide, narrow string) bool {
	w, err := compileGlob(wide)
	n, err2 := compileGlob(narrow)
	return err == nil && err2 == nil && w.covers(&n)
}

// Words returns the words of a name, in order.
func Words(name string) []string { return wordsOf(name) }
