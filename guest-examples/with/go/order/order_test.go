package order

import "testing"

func TestAnOrderIsReadAndWritten(t *testing.T) {
	o, err := Read([]byte(`{"id":"o-1","customer":"c-7","cents":4250,"note":"x"}`))
	want := `{"order":"o-1","customer":"c-7","cents":4250}`
	if err != nil || o.JSON() != want {
		t.Errorf("got %s, %v", o.JSON(), err)
	}
}

func TestOtherBodiesAreDroppedWithAReason(t *testing.T) {
	for body, reason := range map[string]string{
		``:                                      "not an order",
		`hello`:                                 "not an order",
		`null`:                                  "not an order",
		`{"id":"o-1","cents":1}`:                "not an order",
		`{"id":"o-1","customer":"c-7"}`:         "not an order",
		`{"id":"o 1","customer":"c","cents":1}`: "not an order",
		`{"id":"o","customer":"c","cents":-1}`:  "not an order",
		"{\"id\":\"\xff\",\"customer\":\"c\",\"cents\":1}": "not an order",
		`{"id":"o","customer":"c","cents":0}`:              "order o: nothing to charge",
	} {
		if _, err := Read([]byte(body)); err != Rejected(reason) {
			t.Errorf("%s: got %v", body, err)
		}
	}
}
