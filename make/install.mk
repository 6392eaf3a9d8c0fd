# make install PREFIX=/usr/local: the command, its two programs beside each other, the public headers.
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/clio $(DESTDIR)$(PREFIX)/include/clio
	install $(CLIO) $(DESTDIR)$(PREFIX)/bin/clio
	install $(STORE) $(ENGINE) $(DESTDIR)$(PREFIX)/libexec/clio
	install -m 644 $(wildcard include/clio/*.h) $(DESTDIR)$(PREFIX)/include/clio

.PHONY: install
