package mask_test

import (
	"testing"

	"github.com/kyma-project/keb/libs/mask"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestVectors_Texts_AreMasked(t *testing.T) {
	t.Parallel()
	type text struct {
		Text string `json:"text"`
	}
	testkit.Vectors(t, "masking.json", func(in text) text { return text{mask.Text(in.Text)} })
}
