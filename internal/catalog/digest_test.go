package catalog_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func digest(definition string) string {
	return catalog.ReadTool(jsonrpc.Value{Bytes: []byte(definition)}).DigestText()
}

const definition = `{"name":"rm","title":"Remove","description":"Removes \"files\".","inputSchema":{"type":"object","properties":{"path":{"type":"string"},` +
	`"_meta":{"type":"object"}},"required":["path"]},"outputSchema":{"type":"object"},"annotations":{"destructiveHint":true,"title":"R"}}`

// The digest does not depend on the spelling of a definition, nor on members that do not matter
// to an approver.
func TestDigestIgnoresSpelling(t *testing.T) {
	want := digest(definition)
	if !strings.HasPrefix(want, "v2-") {
		t.Errorf("digest %s has no form", want)
	}
	same := map[string]string{
		"white space": strings.ReplaceAll(definition, ",", " ,\n\t"),
		"escapes":     strings.Replace(definition, `"rm"`, `"\u0072m"`, 1),
		"order": `{"annotations":{"title":"R","destructiveHint":true},"outputSchema":{"type":"object"},"inputSchema":{"required":["path"],` +
			`"properties":{"_meta":{"type":"object"},"path":{"type":"string"}},"type":"object"},"description":"Removes \"files\".","title":"Remove","name":"rm"}`,
		"execution": strings.Replace(definition, `{`, `{"execution":{"taskSupport":"required"},`, 1),
		"icons":     strings.Replace(definition, `{`, `{"icons":[{"src":"data:,"}],`, 1),
		"_meta":     strings.Replace(definition, `{`, `{"_meta":{"at":1700000000},`, 1),
	}
	for name, other := range same {
		if got := digest(other); got != want {
			t.Errorf("%s: digest %s; want %s", name, got, want)
		}
	}
}

// Every member that matters to an approver changes the digest.
func TestDigestShowsChange(t *testing.T) {
	seen := map[string]string{digest(definition): "none"}
	changed := map[string]string{
		"name": strings.Replace(definition, `"rm"`, `"rn"`, 1), "title": strings.Replace(definition, `"Remove"`, `"remove"`, 1),
		"description":       strings.Replace(definition, `files`, `all files`, 1),
		"inputSchema":       strings.Replace(definition, `"string"`, `"number"`, 1),
		"an argument":       strings.Replace(definition, `"_meta"`, `"icons"`, 1),
		"order of elements": strings.Replace(definition, `["path"]`, `["path","_meta"]`, 1),
		"reversed elements": strings.Replace(definition, `["path"]`, `["_meta","path"]`, 1),
		"outputSchema":      strings.Replace(definition, `"outputSchema":{"type":"object"},`, ``, 1),
		"annotations":       strings.Replace(definition, `true`, `false`, 1), "annotations.title": strings.Replace(definition, `"R"`, `"r"`, 1),
		"unknown member": strings.Replace(definition, `{`, `{"future":1,`, 1),
		"repeated name":  strings.Replace(definition, `{`, `{"name":"rm",`, 1),
	}
	for name, other := range changed {
		got := digest(other)
		if twin, known := seen[got]; known {
			t.Errorf("%s changes the digest as %s does", name, twin)
		}
		seen[got] = name
	}
}

// FuzzDigest permutes the members of a definition, which keeps the digest, and changes one of its
// strings, which changes the digest.
func FuzzDigest(f *testing.F) {
	f.Add([]byte(definition), uint64(1))
	f.Add([]byte(`{"name":"a","inputSchema":{"$defs":{"b":{"c":[{"e":"\ud83d\ude00","d":"\n"},"x"]}}}}`), uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		var tool map[string]any
		if json.Unmarshal(data, &tool) != nil {
			return
		}
		// Numbers are written as Go writes them, in all spellings.
		plain, err := json.Marshal(tool, json.Deterministic(true))
		if err != nil {
			return
		}
		want := digest(string(plain))
		source := rand.New(rand.NewPCG(seed, 0))
		if shuffled := shuffle(tool, source); digest(shuffled) != want {
			t.Errorf("%s and %s have different digests", plain, shuffled)
		}
		for _, unimportant := range []string{"execution", "icons", "_meta"} {
			delete(tool, unimportant)
		}
		if count := countStrings(tool); count > 0 {
			index := source.IntN(count)
			if other := shuffle(changeString(tool, &index), source); digest(other) == want {
				t.Errorf("%s and %s have the same digest", plain, other)
			}
		}
	})
}

// shuffle encodes a value with the members of its objects in random order.
func shuffle(value any, source *rand.Rand) string {
	var parts []string
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			parts = append(parts, fmt.Sprintf("%s : %s", jsonrpc.AppendString(nil, name), shuffle(member, source)))
		}
		source.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		return "{" + strings.Join(parts, " , ") + "}"
	case []any:
		for _, element := range v {
			parts = append(parts, shuffle(element, source))
		}
		return "[" + strings.Join(parts, ",\n") + "]"
	default:
		text, _ := json.Marshal(v)
		return string(text)
	}
}

func countStrings(value any) (n int) {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			n += countStrings(member)
		}
	case []any:
		for _, element := range v {
			n += countStrings(element)
		}
	case string:
		n = 1
	}
	return n
}

// changeString returns the value with one of its strings changed, the string at index.
func changeString(value any, index *int) any {
	switch v := value.(type) {
	case map[string]any:
		other := make(map[string]any, len(v))
		for name, member := range v {
			other[name] = changeString(member, index)
		}
		return other
	case []any:
		other := make([]any, len(v))
		for i, element := range v {
			other[i] = changeString(element, index)
		}
		return other
	case string:
		*index--
		if *index == -1 {
			return v + "x"
		}
	}
	return value
}
