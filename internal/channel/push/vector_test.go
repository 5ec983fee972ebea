package push

import (
	"crypto/ecdh"
	"testing"
)

// The test vector is from RFC 8291, appendix A.
func TestEncryptMatchesRFC8291(t *testing.T) {
	decode := func(text string) []byte {
		b, err := encoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	own, err := ecdh.P256().NewPrivateKey(decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := ecdh.P256().NewPublicKey(decode("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := seal([]byte("When I grow up, I want to be a watermelon\x02"), receiver, decode("BTBZMqHH6r4Tts7J_aSIgg"), own, decode("DGv6ra1nlYgDCS1FRnbzlw"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_" +
		"yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
	if got := encoding.EncodeToString(sealed); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
