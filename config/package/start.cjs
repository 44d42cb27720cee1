'use strict';
// Code that was compiled once is not compiled again. The service's own directory comes from systemd; a person's
// is the usual one. Root has none: with sudo, HOME may be that of another user, who could write what root runs. A
// failure only costs time.
const { CACHE_DIRECTORY, XDG_CACHE_HOME, HOME } = process.env;
const userCache = process.geteuid() === 0 ? undefined : XDG_CACHE_HOME || (HOME && `${HOME}/.cache`);
const cache = CACHE_DIRECTORY || (userCache && `${userCache}/tillsync`);
if (cache?.startsWith('/')) require('node:module').enableCompileCache(cache);
require('./main.cjs');
