package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"stele/conformance/driver"
)

// security is empty without a login.
func security(login *driver.Login) []kgo.Opt {
	if login == nil {
		return nil
	}
	return []kgo.Opt{kgo.DialTLSConfig(login.TLS), kgo.SASL(mechanism(login))}
}

func mechanism(login *driver.Login) sasl.Mechanism {
	switch login.Mechanism {
	case "OAUTHBEARER":
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := login.Token()
			return oauth.Auth{Token: token}, err
		})
	case "SCRAM-SHA-256":
		return scram.Auth{User: login.User, Pass: login.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: login.User, Pass: login.Password}.AsSha512Mechanism()
	}
	return plain.Auth{User: login.User, Pass: login.Password}.AsMechanism()
}
