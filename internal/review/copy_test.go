package review

import (
	"strings"
	"testing"
)

// A small text has the same view and the same digest whether it is copied at once or value by
// value.
func TestSmallTextHasSameView(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, ` { "a" : [ 1 , 2.50e+3 , -0 , "x" ] , "b" : { } } `, `[[[{"a":[]}]]]`,
		`{"\u0061\n\u00e9é\/":"\u0041\ud83d\ude00<&>\u2028\t"}`, `{"n":123456789012345678901234567890,"z":1E400}`,
		`{"a":1,"a":2}`, `{"a":{"b":1,"\u0062":2}}`, `{"a":`, `{"a":1}}`, "{\"a\":\"\xff\"}", `{"a":tru}`,
	} {
		whole := withoutRedacted(neverEnds, text, nil, 0)
		apart := withoutRedacted(neverEnds, text+strings.Repeat(" ", MaxShown), nil, 0)
		if string(whole.text) != string(apart.text) || (whole.err == nil) != (apart.err == nil) {
			t.Errorf("%s: at once %s, %v; value by value %s, %v", text, whole.text, whole.err, apart.text, apart.err)
		}
	}
}
