package conversation_test

import (
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
)

// Every event of a stream is searched.
func BenchmarkDetectTraits(b *testing.B) {
	texts := map[string]string{
		"prose": `The north bridge carries 4,120 cars a day. See C:\\data\\bridges; the café closes at 18:00. `,
		"items": `{"id":12345,"name":"item name","ok":true,"v":[1,2.5]},`,
		"json":  `{\"id\":12345,\"name\":\"item name\",\"ok\":true},`,
	}
	for name, text := range texts {
		event := []byte(`data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + strings.Repeat(text, 64<<10/len(text)) + `"}}` + "\n\n")
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(event)))
			for b.Loop() {
				if conversation.DetectTraits(event) != (conversation.Traits{}) {
					b.Fatal("the event has traits")
				}
			}
		})
	}
}
