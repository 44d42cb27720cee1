import type { FindingCode } from '../../domain/health/finding.ts';

const DOCTOR = 'Se reintenta por sí solo; si sigue así, ejecute: tillsync doctor';

/** What is wrong and what to do, by code; English comes from the daemon itself. */
export const SPANISH_FINDINGS: Record<FindingCode, { message: string; remedy: string }> = {
  'service.down': {
    message: 'tillsync no está en marcha, así que no entra ni sale nada nuevo.',
    remedy: 'Inícielo con: systemctl start tillsync',
  },
  'state.unusable': {
    message:
      'No se puede usar el archivo de tokens y límites, state.db, así que no se trae ni se envía nada.',
    remedy: 'Vea qué tiene con: tillsync doctor',
  },
  'storage.full': {
    message: 'El disco está lleno; pronto no se podrá guardar lo que llega.',
    remedy: 'Libere espacio en el disco de la carpeta de datos; tillsync sigue por sí solo.',
  },
  'storage.failing': {
    message: 'El disco no guarda lo que llega.',
    remedy: 'Libere espacio o repare el disco; tillsync sigue por sí solo.',
  },
  'auth.locked-out': {
    message: 'La plataforma ya no acepta los tokens, así que no se trae ni se envía nada.',
    remedy: 'Obtenga nuevos tokens en el panel de la empresa y entréguelos con: tillsync auth set',
  },
  'auth.none': {
    message: 'Aún no hay tokens para la plataforma, así que no se trae ni se envía nada.',
    remedy: 'Obtenga tokens en el panel de la empresa y entréguelos con: tillsync auth set',
  },
  'orders.stale': {
    message: 'Ya no se traen pedidos de la plataforma.',
    remedy: 'Revise la conexión a internet de esta máquina; después ejecute: tillsync doctor',
  },
  'orders.unreadable': {
    message: 'La plataforma envía pedidos que no se pueden leer.',
    remedy: 'Quedan guardados. Envíe a soporte lo que muestra tillsync quarantine list.',
  },
  'inbox.damaged': {
    message: 'No se puede usar el buzón por el que el punto de venta entrega cambios.',
    remedy: 'Pida a quien cuida el punto de venta que revise inbox.db, su carpeta y sus permisos.',
  },
  'outbox.stuck': {
    message: 'Hay cambios de stock y precio que esperan demasiado: {count}.',
    remedy: 'Revise la conexión a internet de esta máquina; después ejecute: tillsync doctor',
  },
  'platform.blocked': {
    message: 'La plataforma bloqueó el token por un rato.',
    remedy: 'Espere; termina por sí solo. Asegúrese de que ningún otro programa use el mismo token.',
  },
  'platform.forbidden': {
    message: 'La plataforma rechaza algunas llamadas de forma permanente.',
    remedy: 'Pregunte al soporte de la plataforma qué permisos le faltan al token.',
  },
  'orders.more-pages': {
    message: 'La plataforma retiene una parte de los pedidos.',
    remedy: 'Defina orders.page_parameter en la configuración, o consulte menos días.',
  },
  'webhook.silent': {
    message: 'Los pedidos llegan solo por consulta, hasta dos minutos tarde.',
    remedy: 'Revise el camino de los avisos con: tillsync webhook test',
  },
  'webhook.mismatch': {
    message: 'El webhook de la plataforma no es el que está configurado aquí.',
    remedy: 'Compárelo y defínalo con: tillsync webhook show, tillsync webhook set',
  },
  'webhook.unreadable': {
    message: 'Un aviso no se pudo leer como pedido.',
    remedy: 'Queda guardado. Envíe a soporte lo que muestra tillsync quarantine list.',
  },
  'outbox.rejected': {
    message: 'Cambios que la plataforma rechazó: {count}.',
    remedy: 'Mire por qué, corríjalo y después reinténtelos o descártelos.',
  },
  'outbox.held': {
    message: 'Cambios que parecen un error y esperan una decisión: {count}.',
    remedy: 'Mírelos y después envíelos o descártelos.',
  },
  'catalog.incomplete': {
    message: 'El catálogo no se pudo leer completo.',
    remedy: 'Se reintenta por sí solo; si sigue así, ejecute: tillsync sync products',
  },
  'storage.low': {
    message: 'El disco está casi lleno.',
    remedy: 'Libere espacio en el disco de la carpeta de datos antes de que se llene.',
  },
  'mirror.reader-holds-wal': {
    message: 'Un programa mantiene abierto el espejo demasiado tiempo y su registro crece.',
    remedy: 'Cierre el programa que se nombra, o haga que lea en pasos más cortos.',
  },
  'mirror.too-large': {
    message: 'El espejo es más grande de lo permitido y todo lo que queda en él hace falta.',
    remedy: 'Suba retention.max_bytes, acorte retention.orders, o haga que el POS confirme sus pedidos.',
  },
  quarantine: {
    message: 'Guardado, pero no entendido: {count}.',
    remedy: 'Mírelo con: tillsync quarantine list',
  },
  'auth.expiring': {
    message: 'El refresh token termina pronto.',
    remedy: 'Renuévelo con: tillsync auth refresh',
  },
  'orders.starting': {
    message: 'Aún no se han traído pedidos.',
    remedy: 'Espere unos minutos tras el primer inicio; si sigue así, ejecute: tillsync doctor',
  },
  auth: { message: 'El acceso a la plataforma tiene problemas.', remedy: DOCTOR },
  'orders.poll': { message: 'El último intento de traer pedidos no resultó.', remedy: DOCTOR },
  'orders.webhook': {
    message: 'Los avisos funcionan solo en parte.',
    remedy: 'Los pedidos siguen llegando por consulta. Revise con: tillsync webhook show',
  },
  'outbox.push': { message: 'El último intento de enviar cambios no resultó.', remedy: DOCTOR },
  'catalog.sweep': {
    message: 'El último intento de leer el catálogo no resultó.',
    remedy: 'Se reintenta por sí solo; si sigue así, ejecute: tillsync sync products',
  },
};
