package mcptask_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

// The standard library encodes and decodes every message type correctly, and keeps unknown
// members.
func TestStandardLibraryRoundTripsMessages(t *testing.T) {
	for _, tt := range forms() {
		t.Run(tt.name, func(t *testing.T) {
			text, err := json.Marshal(tt.value)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.text, string(text)); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
			read := reflect.New(reflect.TypeOf(tt.value))
			if err := json.Unmarshal(text, read.Interface()); err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(read.Elem().Interface())
			if diff := cmp.Diff(tt.text, string(again)); diff != "" || err != nil {
				t.Errorf("written again (-want +got):\n%s, %v", diff, err)
			}
			if tt.text[0] != '{' {
				return
			}
			more := strings.TrimSuffix(tt.text, "}")
			if more != "{" {
				more += ","
			}
			more += `"new":1.50}`
			if err := json.Unmarshal([]byte(more), read.Interface()); err != nil {
				t.Fatal(err)
			}
			if again, err = json.Marshal(read.Elem().Interface()); err != nil || !strings.Contains(string(again), `"new":1.50`) {
				t.Errorf("read %s, written %s, %v", more, again, err)
			}
		})
	}
}

// Decode the answer to tasks/get with the standard library and a message type.
func ExampleGetResult2026() {
	const answer = `{"resultType":"complete","taskId":"t1","status":"completed","createdAt":"2026-08-22T10:30:00Z",` +
		`"lastUpdatedAt":"2026-08-22T10:31:00Z","ttlMs":3600000,"result":{"content":[]},"_meta":{"server.pages":12}}`
	var task schema.GetResult2026
	if err := json.Unmarshal([]byte(answer), &task); err != nil {
		panic(err)
	}
	pages, _ := task.Meta.Get("server.pages")
	fmt.Println(task.TaskID, task.Status, task.TTL.Duration(), string(pages), string(task.Result))
	// Output: t1 completed 1h0m0s 12 {"content":[]}
}
