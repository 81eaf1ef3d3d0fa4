package main

import (
	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"stele/conformance/driver"
)

var hashes = map[string]scram.HashGeneratorFcn{
	sarama.SASLTypeSCRAMSHA256: scram.SHA256,
	sarama.SASLTypeSCRAMSHA512: scram.SHA512,
}

// secure sets TLS and the login; without a login it changes nothing.
func secure(config *sarama.Config, login *driver.Login) {
	if login == nil {
		return
	}
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = login.TLS
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(login.Mechanism)
	config.Net.SASL.User = login.User
	config.Net.SASL.Password = login.Password
	if login.TokenFile != "" {
		config.Net.SASL.TokenProvider = tokens{login}
	}
	if hash, isScram := hashes[login.Mechanism]; isScram {
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hash} }
	}
}

type tokens struct{ login *driver.Login }

func (t tokens) Token() (*sarama.AccessToken, error) {
	token, err := t.login.Token()
	return &sarama.AccessToken{Token: token}, err
}

// conversation is one exchange of SCRAM, which this client leaves to a library.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	c.ClientConversation = client.NewConversation()
	return nil
}
