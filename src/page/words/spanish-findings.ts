import type { FindingCode } from '../../health/finding.ts';

const DOCTOR = 'tillsync reintenta. Si sigue así, ejecute: {tillsync} doctor';

/** What is wrong and what to do, by code; English comes from the daemon itself. */
export const SPANISH_FINDINGS: Record<FindingCode, { message: string; remedy: string }> = {
  'service.down': {
    message: 'tillsync no está en marcha. No llegan pedidos ni se envían cambios.',
    remedy: 'Para iniciarlo, ejecute: {start}',
  },
  'setup.missing': {
    message: 'tillsync todavía no está configurado.',
    remedy: 'Ejecute: {tillsync} init',
  },
  'state.unusable': {
    message: 'No se puede usar el archivo de tokens y límites, state.db. No se trae ni se envía nada.',
    remedy: 'Para ver qué pasa, ejecute: {tillsync} doctor',
  },
  'storage.full': {
    message: 'El disco está lleno. Pronto no se podrán guardar pedidos nuevos.',
    remedy: 'Libere espacio en el disco de {storage}. Después tillsync continúa solo.',
  },
  'storage.failing': {
    message: 'No se pudo escribir en el disco.',
    remedy: 'Libere espacio en el disco de {storage}, o repárelo. Después tillsync continúa solo.',
  },
  'clock.wrong': {
    message: 'El reloj de esta máquina está mal por más de medio día.',
    remedy: 'Corríjalo y haga que se mantenga en hora: sudo timedatectl set-ntp true',
  },
  'mirror.locked': {
    message: 'Otro programa mantiene bloqueado el espejo, así que no se puede guardar nada de lo que llega.',
    remedy: 'Cierre el programa que se nombra; tillsync sigue por sí solo.',
  },
  'auth.locked-out': {
    message: 'La plataforma ya no acepta los tokens. No se trae ni se envía nada.',
    remedy: 'Cree un token nuevo en el panel de la empresa, ejecute {tillsync} auth set y péguelo.',
  },
  'auth.other-company': {
    message: 'Llegan pedidos de otra empresa: los tokens pueden ser de otra tienda.',
    remedy:
      'Entregue los tokens de esta tienda: {tillsync} auth set. Si ahora pertenece a la otra empresa: {tillsync} auth set --other-company',
  },
  'auth.none': {
    message: 'Aún no hay tokens para la plataforma. No se trae ni se envía nada.',
    remedy: 'Cree un token en el panel de la empresa, ejecute {tillsync} auth set y péguelo.',
  },
  'orders.stale': {
    message: 'Ya no se traen pedidos de la plataforma.',
    remedy: 'Revise la conexión a internet de este equipo y después ejecute: {tillsync} doctor',
  },
  'orders.unreadable': {
    message: 'La plataforma envía pedidos que no se pueden leer.',
    remedy: 'Están guardados. Envíe a soporte lo que muestra: {tillsync} quarantine list',
  },
  'inbox.damaged': {
    message: 'No se puede usar el buzón donde el punto de venta escribe sus cambios.',
    remedy: 'Pida al proveedor del punto de venta que revise inbox.db, su carpeta y sus permisos.',
  },
  'inbox.locked': {
    message: 'Un programa mantiene bloqueado el buzón, así que no pasan los cambios del punto de venta.',
    remedy: 'Cierre o reinicie el programa que se nombra.',
  },
  'outbox.stuck': {
    message: 'Cambios de stock y precio que llevan demasiado tiempo sin enviarse: {count}.',
    remedy: 'Revise la conexión a internet de este equipo y después ejecute: {tillsync} doctor',
  },
  'platform.blocked': {
    message: 'La plataforma bloqueó el token por unos minutos.',
    remedy: 'Espere a que termine. Asegúrese de que ningún otro programa use el mismo token.',
  },
  'platform.forbidden': {
    message: 'La plataforma no permite algunas llamadas.',
    remedy: 'Pregunte al soporte de la plataforma qué permisos le faltan al token.',
  },
  'clock.off': {
    message: 'El reloj de esta máquina no está en hora.',
    remedy: 'Haga que se mantenga en hora: sudo timedatectl set-ntp true',
  },
  'orders.more-pages': {
    message: 'La plataforma envía solo una parte de los pedidos.',
    remedy: 'Defina orders.page_parameter en la configuración, o consulte menos días.',
  },
  'webhook.refused': {
    message: 'Se rechazan los avisos de la plataforma, así que los pedidos llegan solo por consulta.',
    remedy: 'Véalos con: {tillsync} callbacks tail',
  },
  'webhook.silent': {
    message: 'Los pedidos llegan solo por consulta, hasta dos minutos tarde.',
    remedy: 'Para probar la dirección de los avisos, ejecute: {tillsync} webhook test',
  },
  'webhook.mismatch': {
    message: 'El webhook de la plataforma no es el que está configurado aquí.',
    remedy: 'Compare con {tillsync} webhook show y después ejecute: {tillsync} webhook set',
  },
  'webhook.unreadable': {
    message: 'Un aviso no se pudo leer como pedido.',
    remedy: 'Está guardado. Envíe a soporte lo que muestra: {tillsync} quarantine list',
  },
  'outbox.rejected': {
    message: 'Cambios que la plataforma rechazó: {count}.',
    remedy: 'Vea por qué, corríjalo y después reinténtelos o descártelos.',
  },
  'outbox.held': {
    message: 'Cambios que parecen un error y necesitan una decisión: {count}.',
    remedy: 'Revíselos y después envíelos o descártelos.',
  },
  'catalog.incomplete': {
    message: 'Solo se pudo leer una parte del catálogo.',
    remedy: 'tillsync reintenta. Si sigue así, ejecute: {tillsync} sync products',
  },
  'storage.low': {
    message: 'El disco está casi lleno.',
    remedy: 'Libere espacio en el disco de {storage} antes de que se llene.',
  },
  'mirror.reader-holds-wal': {
    message: 'Un programa mantiene abierta la base mirror.db demasiado tiempo y su registro crece.',
    remedy: 'Cierre ese programa, o pida a su proveedor que lea en pasos más cortos.',
  },
  'mirror.too-large': {
    message: 'La base mirror.db supera su límite y todo lo que contiene todavía se necesita.',
    remedy: 'Suba retention.max_bytes, acorte retention.orders, o haga que el POS confirme sus pedidos.',
  },
  quarantine: {
    message: 'Mensajes que no se pudieron leer y se apartaron: {count}.',
    remedy: 'Para verlos, ejecute: {tillsync} quarantine list',
  },
  'auth.expiring': {
    message: 'El refresh token vence pronto.',
    remedy: 'Para renovarlo, ejecute: {tillsync} auth refresh',
  },
  'orders.resuming': {
    message: 'Ya hay tokens nuevos; los pedidos se traen con la próxima consulta.',
    remedy: 'Espere dos minutos; si sigue así, ejecute: {tillsync} doctor',
  },
  'orders.starting': {
    message: 'Aún no se han traído pedidos.',
    remedy: 'Espere unos minutos después del primer inicio. Si sigue así, ejecute: {tillsync} doctor',
  },
  auth: { message: 'El acceso a la plataforma tiene problemas.', remedy: DOCTOR },
  'orders.poll': { message: 'El último intento de traer pedidos no resultó.', remedy: DOCTOR },
  'orders.webhook': {
    message: 'Los avisos funcionan solo en parte.',
    remedy: 'Los pedidos siguen llegando por consulta. Para revisar, ejecute: {tillsync} webhook show',
  },
  'outbox.push': { message: 'El último intento de enviar cambios no resultó.', remedy: DOCTOR },
  'catalog.sweep': {
    message: 'El último intento de leer el catálogo no resultó.',
    remedy: 'tillsync reintenta. Si sigue así, ejecute: {tillsync} sync products',
  },
};
