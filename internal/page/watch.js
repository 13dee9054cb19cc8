setTimeout(function(){window.vestibule||location.reload()},20000)
