package mcptask_test

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

// FuzzRead reads an input as every message type. A message that can be read is written in the
// same way each time. Reading capabilities never fails.
func FuzzRead(f *testing.F) {
	for _, v := range loadVectors(f) {
		f.Add([]byte(v.Message))
		if v.Member != "" {
			f.Add([]byte(at(f, v.Message, v.Member)))
		}
	}
	kinds := forms()
	for _, form := range kinds {
		f.Add([]byte(form.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, form := range kinds {
			once, err := again(form.value, text)
			if err != nil {
				continue
			}
			twice, err := again(form.value, once)
			if err != nil || !bytes.Equal(once, twice) {
				t.Errorf("%T of %s is %s, then %s (%v)", form.value, text, once, twice, err)
			}
		}
		schema.DetectServer(text)
		schema.DetectClient(text)
		var o schema.Object
		if json.Unmarshal(text, &o) == nil {
			schema.RelatedTask(o)
			schema.RequestDeclaresTasks(o)
		}
	})
}
