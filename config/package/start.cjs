'use strict';
// Code that was compiled once is not compiled again. The service's own directory comes from systemd; a person's
// is the usual one. A failure only costs time.
const { CACHE_DIRECTORY, XDG_CACHE_HOME, HOME } = process.env;
const userCache = XDG_CACHE_HOME || (HOME && `${HOME}/.cache`);
const cache = CACHE_DIRECTORY || (userCache && `${userCache}/tillsync`);
if (cache?.startsWith('/')) require('node:module').enableCompileCache(cache);
require('./main.cjs');
